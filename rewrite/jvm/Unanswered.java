package rewrite.jvm;

/** Mode `strict`: asking failed, and the query shall too. Nothing else may stop a query. */
public final class Unanswered extends RuntimeException {
  public Unanswered(Throwable cause) {
    super(Skipping.PREFIX + "mode is strict", cause);
  }
}
