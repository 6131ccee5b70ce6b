package rewrite.jvm.bridge;

import java.io.IOException;

/** A message from Python has another version: files of two releases are mixed. */
final class ProtocolException extends IOException {
  private static final long serialVersionUID = 1;

  ProtocolException() {
    super("Python's response has another version of the protocol: restart Python");
  }
}
