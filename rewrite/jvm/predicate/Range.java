package rewrite.jvm.predicate;

/** The values from `min` to `max`, both included; null where the range has no such end. */
public record Range(Object min, Object max) {
  static final Range ALL = new Range(null, null);

  /** Whether the range holds exactly one value. */
  public boolean isSingle() {
    return min != null && min.equals(max);
  }
}
