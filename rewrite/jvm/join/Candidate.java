package rewrite.jvm.join;

import org.apache.spark.sql.catalyst.expressions.Expression;

/** An expression over the pruning side of a join, and the side that has its keys. */
record Candidate(Expression pruningKey, FilteringSide side) {}
