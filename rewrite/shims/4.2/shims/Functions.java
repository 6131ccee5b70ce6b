package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;

/**
 * Names of functions.
 *
 * <p>Since 4.2 names of builtin functions have a catalog and a database.
 */
public final class Functions {
  private Functions() {}

  /** The name of a function next to Spark's own. */
  public static FunctionIdentifier name(String name) {
    return FunctionRegistry$.MODULE$.builtinFunctionIdentifier(name);
  }
}
