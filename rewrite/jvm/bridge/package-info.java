/**
 * Sends requests to Python and reads its responses; the session's settings; time budgets; failures.
 *
 * <p>Depends on `shims` only, and all other packages depend on it. Java collects conditions and
 * applies results, and Python decides what an index prunes: see `rewrite/bridge/`.
 *
 * <p>Start with IndexClient. It writes a Request with MessageWriter, sends it through a
 * PythonCallback, and reads a LookupResponse, whose ordinals FileOrdinals maps to files. Failures
 * decides which exceptions end a query, and ScalaInterop converts Scala's collections.
 */
package rewrite.jvm.bridge;
