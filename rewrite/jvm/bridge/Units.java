package rewrite.jvm.bridge;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Durations and sizes as skipping/config/settings.py reads them. */
public final class Units {
  private static final Pattern DURATION =
      Pattern.compile("([0-9]+(?:\\.[0-9]+)?|\\.[0-9]+)\\s*([a-z]*)");
  private static final Pattern SIZE = Pattern.compile("(-?[0-9]+)\\s*([a-z]*)");

  public Units() {}

  /** Seconds; `otherwise` where the text is no duration above zero. */
  public static double seconds(String text, double otherwise) {
    Matcher parts = DURATION.matcher(text.trim().toLowerCase(Locale.ROOT));
    if (!parts.matches()) return otherwise;
    String unit = parts.group(2);
    double scale =
        unit.equals("us") ? 1e-6
        : unit.equals("ms") ? 1e-3
        : unit.isEmpty() || unit.equals("s") ? 1
        : unit.equals("m") || unit.equals("min") ? 60
        : unit.equals("h") ? 3600
        : unit.equals("d") ? 86400
        : 0;
    double seconds = Double.parseDouble(parts.group(1)) * scale;
    return seconds > 0 && !Double.isInfinite(seconds) ? seconds : otherwise;
  }

  /** Bytes, at most Long.MAX_VALUE; `otherwise` where the text is no size. */
  public static long bytes(String text, long otherwise) {
    Matcher parts = SIZE.matcher(text.trim().toLowerCase(Locale.ROOT));
    if (!parts.matches()) return otherwise;
    String unit = parts.group(2);
    int power = 0;
    if (!unit.isEmpty() && !unit.equals("b")) {
      power = "kmgtp".indexOf(unit.charAt(0)) + 1;
      String rest = unit.substring(1);
      if (power == 0 || !rest.isEmpty() && !rest.equals("b") && !rest.equals("ib")) {
        return otherwise;
      }
    }
    double bytes = Double.parseDouble(parts.group(1)) * Math.pow(1024, power);
    return bytes >= Long.MAX_VALUE ? Long.MAX_VALUE : (long) bytes;
  }
}
