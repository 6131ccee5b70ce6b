package rewrite.jvm.bridge;

/** Ends a query after a failed lookup in mode `strict`. Nothing else of ours may end one. */
public final class StrictModeException extends RuntimeException {
  private static final long serialVersionUID = 1;

  public StrictModeException(Throwable cause) {
    super(SkippingConf.PREFIX + "mode is strict", cause);
  }
}
