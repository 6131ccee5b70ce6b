/**
 * Translates conditions of Spark's plans, and the keys of joins, for an index.
 *
 * <p>Depends on bridge only. Start at PredicateEncoder: it translates the filters of a scan into a
 * tree of Condition records, and ConditionWriter writes that into the message to Python.
 * IndexedColumns says which expressions the index has; ExpressionText gives an indexed expression
 * its identity. Monotonic and Inversion find the values of a column from the result of a function.
 * KeyValues, KeyRanges and Tuples hold the keys of joins; RuntimeRowFilter filters rows by them.
 * TopRows recognizes `ORDER BY ... LIMIT`, min and max. Conditions, Casts and ValueTypes are shared
 * helpers.
 */
package rewrite.jvm.predicate;
