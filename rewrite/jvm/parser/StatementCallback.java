package rewrite.jvm.parser;

import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;

/** Python's half of the statements. */
public final class StatementCallback {
  private final BiFunction python;
  private final String secret;

  /** `python` parses (text, null) and runs (text, session), for those who know the `secret`. */
  public StatementCallback(BiFunction python, String secret) {
    this.python = python;
    this.secret = secret;
  }

  /** What parsing a text gives, without a session, or running it in one. */
  Object call(String text, SparkSession session) {
    return python.apply(secret + text, session);
  }
}
