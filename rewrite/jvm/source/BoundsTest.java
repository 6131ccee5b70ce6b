package rewrite.jvm.source;

/** What is asked of the bounds of a column in a file. */
interface BoundsTest {
  /** Whether it is proven that no value from `lower` to `upper`, both included, is asked for. They
      may be of a narrower type than what is asked: integers, FLOAT for DOUBLE. */
  boolean excludes(Object lower, Object upper);
}
