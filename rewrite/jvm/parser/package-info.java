/**
 * The project's statements in Spark's SQL parser, and the function `in_network`.
 *
 * <p>Depends on `bridge` only. Each Spark line adds an AbstractParser, and from 4.1 on Parameters,
 * which fills in the parameters of any statement: see `rewrite/shims`.
 *
 * <p>Start with SkippingSqlParser: it turns a text that Python recognizes into a SkippingCommand.
 * StatementCallback runs it in Python, on a CallerThread, with a StatementCall as the argument.
 */
package rewrite.jvm.parser;
