package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;

/**
 * The texts that whatever matches a pattern has: of LIKE, and of a regular expression.
 *
 * <p>What matches has more to it, so that this says nothing of what does not match.
 */
public final class TextPattern {
  /** Texts between the wildcards, in order; the first and the last may be empty. */
  private final List texts = new ArrayList();

  private final boolean atEnds;
  private StringBuilder run = new StringBuilder();

  private TextPattern(boolean atEnds) {
    this.atEnds = atEnds;
  }

  /** What a pattern of LIKE demands; null: it is none that Spark takes. */
  public static TextPattern like(String pattern, int escape) {
    TextPattern out = new TextPattern(true);
    for (int at = 0; at < pattern.length(); at++) {
      char c = pattern.charAt(at);
      if (c == escape) {
        at++;
        if (at == pattern.length()) return null;
        c = pattern.charAt(at);
        if (c != '_' && c != '%' && c != escape) return null;
        out.add(c);
      } else if (c == '_' || c == '%') {
        out.end();
      } else {
        out.add(c);
      }
    }
    out.end();
    return out;
  }

  /**
   * What a regular expression demands that is a sequence of characters, each itself or one of
   * many, and their repetitions; null: it is anything else.
   */
  public static TextPattern regex(String pattern) {
    TextPattern out = new TextPattern(false);
    for (int at = 0; at < pattern.length(); at++) {
      char c = pattern.charAt(at);
      if (c == '\\') {
        at++;
        if (at == pattern.length()) return null;
        char escaped = pattern.charAt(at);
        if ("dDwWsSbB".indexOf(escaped) >= 0) {
          out.end();
        } else if (escaped < 128 && !Character.isLetterOrDigit(escaped)) {
          out.add(escaped);
        } else {
          return null; // \Q, \x41, \p{L}, \1
        }
      } else if (c == '*' || c == '?' || c == '+' || c == '{') {
        out.dropLast();
        out.end();
        if (c == '{') at = pattern.indexOf('}', at);
        if (at < 0) return null;
      } else if (c == '.' || c == '^' || c == '$') {
        out.end();
      } else if (c < 128 ? isPlain(c) : Character.isLetter(c)) {
        out.add(c);
      } else {
        return null; // |, (, [, and what looks like half a character
      }
    }
    out.end();
    return out;
  }

  private static boolean isPlain(char c) {
    return Character.isLetterOrDigit(c) || " _-/:;,@=%&'\"<>!~`".indexOf(c) >= 0;
  }

  private void add(char c) {
    run.append(c);
  }

  private void dropLast() {
    if (run.length() > 0) run.setLength(run.length() - 1);
  }

  /** Ends a text. Bytes that are no text match as U+FFFD, and are not that. */
  private void end() {
    String text = run.toString();
    texts.add(text.indexOf('\uFFFD') < 0 ? text : "");
    run = new StringBuilder();
  }

  /** What it is, where it has no wildcard; else null. */
  public String whole() {
    return atEnds && texts.size() == 1 ? text(0) : null;
  }

  /** What it begins with; may be empty. */
  public String prefix() {
    return atEnds ? text(0) : "";
  }

  /** What it ends with; may be empty. */
  public String suffix() {
    return atEnds ? text(texts.size() - 1) : "";
  }

  /** What it has in it, each not empty. */
  public List inner() {
    List out = new ArrayList();
    for (int i = atEnds ? 1 : 0; i < texts.size() - (atEnds ? 1 : 0); i++) {
      if (!text(i).isEmpty()) out.add(text(i));
    }
    return out;
  }

  private String text(int i) {
    return (String) texts.get(i);
  }
}
