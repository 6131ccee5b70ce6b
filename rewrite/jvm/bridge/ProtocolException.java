package rewrite.jvm.bridge;

import java.io.IOException;

/** A message of Python's is of another version: files of two releases are mixed. */
public final class ProtocolException extends IOException {
  private static final long serialVersionUID = 1;

  public ProtocolException() {
    super("an answer of Python's is of another version of the protocol");
  }
}
