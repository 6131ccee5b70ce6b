/**
 * The keys of joins: where they come from, how they are collected, and what they pruned.
 *
 * <p>Depends on `bridge` and `predicate`. The package `join` registers the filtering side of each
 * dynamic pruning expression that it puts into a plan in a PruningRegistry, as a KeySource. The
 * package `scan` finds it there, and collects the keys.
 *
 * <p>Start with JoinKeySet, the keys that one scan waits for; then KeyCollection, which collects
 * them from a broadcast (BroadcastKeys), from a shuffle (SharedShuffle) or by another read, and
 * TupleKeys, which has the keys of several columns. PruningFeedback remembers what keys pruned.
 */
package rewrite.jvm.keys;
