/**
 * Puts the keys of joins on scans, while Spark optimizes a query.
 *
 * <p>Depends on `bridge`, `predicate`, `keys` and `source`. The words are those of Spark's rule
 * PartitionPruning: the filtering side of a join provides keys, the scans on its pruning side are
 * pruned by them. Reading the filtering side is the overhead, the bytes that a scan need not read
 * are the benefit, and a plan that returns the same rows when it is computed again is repeatable.
 * In texts for users, the filtering side is "the dimension".
 *
 * <p>Start with JoinPruningRule, which chooses the sides of each join. KeyPushdown takes a key down
 * to the scans, PruningCost decides there if it is worth it, and creates a DynamicPruningSubquery,
 * which the package `scan` finds in the physical plan. FilteringSide, JoinKeys and SideCost
 * describe what provides the keys.
 */
package rewrite.jvm.join;
