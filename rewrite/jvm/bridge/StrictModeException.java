package rewrite.jvm.bridge;

/** Mode `strict`: asking failed, and the query shall too. Nothing else may stop a query. */
public final class StrictModeException extends RuntimeException {
  private static final long serialVersionUID = 1;

  public StrictModeException(Throwable cause) {
    super(SkippingConf.PREFIX + "mode is strict", cause);
  }
}
