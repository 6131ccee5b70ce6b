package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;

/**
 * The texts that every match of a LIKE pattern, or of a regular expression, must contain.
 *
 * <p>A match needs more than these texts, so they say nothing about values that do not match.
 */
public final class TextPattern {
  /** Texts between the wildcards, in order; the first and the last may be empty. */
  private final List<String> texts = new ArrayList<>();

  private final boolean atEnds;
  private final StringBuilder run = new StringBuilder();

  private TextPattern(boolean atEnds) {
    this.atEnds = atEnds;
  }

  /** Return the texts in a LIKE pattern; null if Spark rejects the pattern. */
  public static TextPattern like(String pattern, int escape) {
    TextPattern out = new TextPattern(true);
    for (int at = 0; at < pattern.length(); at++) {
      char c = pattern.charAt(at);
      if (c == escape) {
        at++;
        if (at == pattern.length()) return null;
        c = pattern.charAt(at);
        if (c != '_' && c != '%' && c != escape) return null;
        out.run.append(c);
      } else if (c == '_' || c == '%') {
        out.end();
      } else {
        out.run.append(c);
      }
    }
    out.end();
    return out;
  }

  /**
   * Return the texts in a regular expression that is a sequence of characters, character classes
   * and their repetitions; null for any other one.
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
          out.run.append(escaped);
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
        out.run.append(c);
      } else {
        return null; // |, (, [, and half of a surrogate pair
      }
    }
    out.end();
    return out;
  }

  private static boolean isPlain(char c) {
    return Character.isLetterOrDigit(c) || " _-/:;,@=%&'\"<>!~`".indexOf(c) >= 0;
  }

  private void dropLast() {
    if (run.length() > 0) run.setLength(run.length() - 1);
  }

  /** End a text. Invalid UTF-8 matches U+FFFD, but contains other bytes. */
  private void end() {
    texts.add(run.indexOf("\uFFFD") < 0 ? run.toString() : "");
    run.setLength(0);
  }

  /** Return the whole text of a pattern without wildcards; null for any other one. */
  public String whole() {
    return atEnds && texts.size() == 1 ? texts.get(0) : null;
  }

  /** Return the text at the start; it may be empty. */
  public String prefix() {
    return atEnds ? texts.get(0) : "";
  }

  /** Return the text at the end; it may be empty. */
  public String suffix() {
    return atEnds ? texts.get(texts.size() - 1) : "";
  }

  /** Return the texts in between that are not empty. */
  public List<String> inner() {
    int ends = atEnds && !texts.isEmpty() ? 1 : 0;
    int last = Math.max(ends, texts.size() - ends);
    return texts.subList(ends, last).stream().filter(text -> !text.isEmpty()).toList();
  }
}
