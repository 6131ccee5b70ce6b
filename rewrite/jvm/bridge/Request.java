package rewrite.jvm.bridge;

import java.util.Map;

/** A request to Python. MessageWriter writes it, and `rewrite/bridge/callbacks.py` handles it. */
public sealed interface Request {
  /** Which tables have an index? */
  record ListIndexes() implements Request {}

  /** What number is the text of a setting? */
  record ReadSetting(String name, String text) implements Request {}

  /** Which condition on a column `ip` does a network stand for? */
  record WriteCondition(String network) implements Request {}

  /** What is in a section of the tab in Spark's UI? */
  record WriteSection(String name) implements Request {}

  /** Which files does an index have, after the first ones of these entries? */
  record ListFiles(String index, String table, String entriesId, int first) implements Request {}

  /** Which files of a table does a condition prune? */
  record FindPrunable(String table, Map<String, Object> condition) implements Request {}
}
