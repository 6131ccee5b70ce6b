package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.FunctionIdentifier;

/**
 * Names of functions.
 *
 * <p>Until 4.1 a builtin function has no catalog and no database; see 4.2.
 */
public final class Functions {
  private Functions() {}

  /** The name of a function next to Spark's own. */
  public static FunctionIdentifier name(String name) {
    return new FunctionIdentifier(name);
  }
}
