package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.OctetLength;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType$;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.ScalaInterop;

/** Counts the bytes of keys as they come, against `spark.skipping.dynamic.maxBytes`. */
final class KeyBytes {
  /** What `fetch` gives where keys are long, and fit: they are still to be fetched. */
  static final Collection LONG = new ArrayList();

  private static final int LEAST_WIDTH = 8;

  /** Keys up to here come with their lengths; of longer ones the lengths come first. */
  private static final int SHORT = 64;

  private final int width;
  private final long limit;
  private long sum;

  /** No limit if it is not above zero. */
  KeyBytes(DataType type, long limit) {
    this.width = width(type);
    this.limit = limit;
  }

  /** Counts one; whether all so far fit. */
  boolean fits(Object value) {
    return fits(
        value instanceof UTF8String ? ((UTF8String) value).numBytes()
        : value instanceof byte[] ? ((byte[]) value).length
        : value instanceof UnsafeRow ? ((UnsafeRow) value).getSizeInBytes() // a tuple
        : 0);
  }

  private boolean fits(long length) {
    sum += Math.max(width, length);
    return limit <= 0 || sum <= limit;
  }

  /** What one takes at least. */
  private static int width(DataType type) {
    return Math.max(LEAST_WIDTH, type.defaultSize());
  }

  /** How many fit at most. */
  static int most(DataType type, long limit) {
    return limit <= 0 ? Integer.MAX_VALUE - 1 : (int) Math.min(limit / width(type), 1 << 30);
  }

  /** Whether the size of a value is its own. */
  static boolean varies(DataType type) {
    if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      for (int i = 0; i < fields.length; i++) {
        if (varies(fields[i].dataType())) return true;
      }
    }
    return type instanceof StringType || type instanceof BinaryType;
  }

  /**
   * The first column of a plan, which may be longer than memory: short values with their lengths,
   * of long ones the lengths alone. Null: they do not fit. LONG: they do, and some are long.
   */
  static Collection fetch(SparkPlan plan, DataType type, int most, long limit) {
    Expression key = plan.output().head();
    List lengths = lengths(key);
    Expression shortKey = key;
    List columns = new ArrayList();
    for (int i = 0; i < lengths.size(); i++) {
      Expression length = (Expression) lengths.get(i);
      Expression isLong = // null where the value is: that is short
          new GreaterThan(length, new Literal(Integer.valueOf(SHORT), IntegerType$.MODULE$));
      shortKey = new If(isLong, new Literal(null, key.dataType()), shortKey);
      columns.add(named(length));
    }
    columns.add(0, named(shortKey));
    InternalRow[] rows =
        new ProjectExec(ScalaInterop.asScala(columns), plan).executeTake(most + 1);
    KeyBytes bytes = new KeyBytes(type, limit);
    List out = new ArrayList(rows.length);
    boolean areLong = false;
    for (int i = 0; i < rows.length; i++) {
      long octets = 0;
      for (int j = 1; j <= lengths.size(); j++) {
        int length = rows[i].isNullAt(j) ? 0 : rows[i].getInt(j);
        octets += length;
        areLong |= length > SHORT;
      }
      if (!bytes.fits(octets)) return null;
      out.add(rows[i].isNullAt(0) ? null : rows[i].get(0, type));
    }
    return areLong ? LONG : out;
  }

  /** Those of a key, or of each field of a tuple, whose values have sizes of their own. */
  private static List lengths(Expression key) {
    List out = new ArrayList();
    if (key.dataType() instanceof StructType) {
      StructField[] fields = ((StructType) key.dataType()).fields();
      for (int i = 0; i < fields.length; i++) {
        out.addAll(lengths(new GetStructField(key, i, scala.Option.empty())));
      }
    } else if (varies(key.dataType())) {
      out.add(new OctetLength(key));
    }
    return out;
  }

  private static Alias named(Expression column) {
    return new Alias(
        column, "key", NamedExpression$.MODULE$.newExprId(),
        ScalaInterop.asScala(Collections.EMPTY_LIST), scala.Option.empty(),
        ScalaInterop.asScala(Collections.EMPTY_LIST));
  }
}
