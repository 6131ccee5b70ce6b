package rewrite.jvm.source;

import com.fasterxml.jackson.annotation.JsonFormat;
import java.util.List;

/** A step of a table format's own pruning: the files and the bytes (null: not known) it leaves. */
@JsonFormat(shape = JsonFormat.Shape.ARRAY)
public record SizeStep(String name, Number files, Number bytes) {
  /** Adds a step, unless its files are not known. */
  public static void add(List<SizeStep> steps, String name, Number files, Number bytes) {
    if (files != null) steps.add(new SizeStep(name, files, bytes));
  }
}
