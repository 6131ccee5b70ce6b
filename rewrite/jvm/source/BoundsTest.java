package rewrite.jvm.source;

/** A test of the bounds of a column in a file. */
interface BoundsTest {
  /** Whether no value from `lower` to `upper`, both included, can match. They may be of a narrower
      type than the values that are looked for: integers, FLOAT for DOUBLE. */
  boolean excludes(Object lower, Object upper);
}
