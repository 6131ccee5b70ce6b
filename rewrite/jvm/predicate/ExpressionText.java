package rewrite.jvm.predicate;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Lower;
import org.apache.spark.sql.catalyst.expressions.Upper;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Values;

/**
 * An expression over columns of a table as a text: two with one text give the same value of the
 * same row.
 *
 * <p>The text has each function by its class and all that the class was made with: time zone, ANSI
 * mode, types. Columns stand in it by their identity. Only functions on a list have one: they
 * depend on nothing but their arguments, and on settings, which must be as by default.
 *
 * <p>Not as Spark's canonical form, which takes the operands of a chain in any order: (a + b) + c
 * of DOUBLE is not a + (b + c), and the one may overflow where the other does not. Here a + b is
 * b + a, and the order of the steps stays.
 */
public final class ExpressionText {
  private static final String PACKAGE = "org.apache.spark.sql.catalyst.expressions.";
  private static final int LONGEST = 4000;
  private static final int DEEPEST = 60;
  static final String UNLISTED = " is not among the functions that an index can hold";
  private static final String TOO_LONG = "it is too long for an index";

  /** Languages with an upper or a lower case of their own. */
  private static final Set LANGUAGES =
      new HashSet(Arrays.asList(new Object[] {"az", "el", "hy", "lt", "tr"}));

  private static final Set FUNCTIONS = new HashSet(Arrays.asList(new Object[] {
    "Abs", "Add", "AddMonths", "And", "Ascii", "BRound", "Base64", "BitLength", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "CaseWhen", "Cast", "Ceil", "Coalesce", "Concat",
    "ConcatWs", "Contains", "Crc32", "DateAdd", "DateDiff", "DateFormatClass", "DateSub",
    "DayOfMonth", "DayOfWeek", "DayOfYear", "Divide", "EndsWith", "EqualNullSafe", "EqualTo",
    "Floor", "GetJsonObject", "GetTimestamp", "GreaterThan", "GreaterThanOrEqual", "Greatest",
    "Hex", "Hour", "If", "In", "InitCap", "IntegralDivide", "IsNaN", "IsNotNull", "IsNull",
    "KnownNotNull", "LastDay", "Least", "Length", "LessThan", "LessThanOrEqual", "Like",
    "Literal", "Lower", "Md5", "Minute", "Month", "MonthsBetween", "Multiply", "Murmur3Hash",
    "NextDay", "Not", "OctetLength", "Or", "Pmod", "Quarter", "RLike", "RegExpExtract",
    "RegExpReplace", "Remainder", "Reverse", "Round", "Second", "Sha1", "Sha2", "ShiftLeft",
    "ShiftRight", "ShiftRightUnsigned", "StartsWith", "StringInstr", "StringLocate",
    "StringReplace", "StringTranslate", "StringTrim", "StringTrimLeft", "StringTrimRight",
    "Substring", "SubstringIndex", "Subtract", "TruncDate", "TruncTimestamp", "UnaryMinus",
    "Unhex", "Upper", "VariantGet", "WeekDay", "WeekOfYear", "XxHash64", "Year", "YearOfWeek"
  }));

  private static final Set COMMUTATIVE = new HashSet(Arrays.asList(new Object[] {
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "EqualNullSafe", "EqualTo", "Multiply",
    "Or"
  }));

  /** What such functions read of a session when they are evaluated, by the beginnings of names. */
  private static final String[] SETTINGS = {
    "spark.sql.legacy.", "spark.sql.icu.", "spark.sql.collation.",
    "spark.sql.decimalOperations.", "spark.sql.json.", "spark.sql.analyzer.canonicalization."
  };

  private final ColumnResolver columns;
  private final StringBuilder out = new StringBuilder(IndexClient.EXPRESSION);
  private final Set read = new TreeSet();
  private String refusal;

  private ExpressionText(ColumnResolver columns) {
    this.columns = columns;
  }

  /** That of an optimised expression, whose columns a resolver knows, in a session that has no
      `setting`. */
  public static ExpressionText of(Expression e, ColumnResolver columns) {
    ExpressionText text = new ExpressionText(columns);
    text.write(e, 0);
    return text;
  }

  /** Whether a function, or a literal, depends on nothing but its arguments. */
  static boolean isListed(Expression e) {
    String name = e.getClass().getSimpleName();
    String path = e.getClass().getName();
    boolean isSparks = path.equals(PACKAGE + name) || path.equals(PACKAGE + "variant." + name);
    return isSparks && FUNCTIONS.contains(name);
  }

  static String unlisted(Expression e) {
    return e.prettyName() + UNLISTED;
  }

  /** The text; null: there is none. */
  public String text() {
    return refusal == null ? out.toString() : null;
  }

  /** Why there is none. */
  public String refusal() {
    return refusal;
  }

  /** The names of the columns that were found in it. */
  public Set read() {
    return read;
  }

  /** A setting that changes what functions do, and that a session has not as by default; null:
      there is none. */
  static String setting(SQLConf conf) {
    List set = ScalaInterop.list(conf.getAllConfs());
    for (int i = 0; i < set.size(); i++) {
      String name = (String) ((scala.Tuple2) set.get(i))._1();
      for (int k = 0; k < SETTINGS.length; k++) {
        if (!name.startsWith(SETTINGS[k])) continue;
        Object value = ((scala.Tuple2) set.get(i))._2();
        org.apache.spark.internal.config.ConfigEntry entry =
            (org.apache.spark.internal.config.ConfigEntry) SQLConf$.MODULE$.getConfigEntry(name);
        if (entry == null || !value.equals(entry.defaultValueString())) return name;
      }
    }
    return null;
  }

  private void refuse(String why) {
    if (refusal == null) refusal = why;
  }

  private void write(Expression e, int depth) {
    if (refusal != null) return;
    e = VariantFields.restored(e);
    if (depth > DEEPEST || out.length() > LONGEST) {
      refuse(TOO_LONG);
      return;
    }
    if (isCollated(e.dataType())) {
      refuse("a text in it has a collation");
    } else if (Conditions.path(e) != null) {
      column(e);
    } else if (e instanceof Literal) {
      literal(((Literal) e).value(), e.dataType());
    } else if (!isListed(e)) {
      refuse(unlisted(e));
    } else if (isOfItsDay(e)) {
      refuse("a text with a time alone is a timestamp of the day on which it is read");
    } else {
      function(isTurned(e) ? turned(e) : e, depth);
    }
  }

  /** Whether texts, which variants have, too, become timestamps: of `10:00` it is one of today. */
  private static boolean isOfItsDay(Expression e) {
    boolean isOfText = VariantFields.isGet(e)
        || e instanceof Cast && ((Cast) e).child().dataType().existsRecursively(new IsText());
    return isOfText && e.dataType().existsRecursively(new IsTimestamp());
  }

  private static final class IsText extends scala.runtime.AbstractFunction1 {
    public Object apply(Object type) {
      return Boolean.valueOf(type instanceof StringType || Values.isVariant(type));
    }
  }

  private static final class IsTimestamp extends scala.runtime.AbstractFunction1 {
    public Object apply(Object type) {
      return Boolean.valueOf(type instanceof TimestampType);
    }
  }

  private static boolean isCollated(DataType type) {
    return type instanceof StringType && !type.catalogString().equals("string");
  }

  /** Whether the operands of a commutative operator are the other way round: a constant comes last,
      and columns by their identity. Others stay: where the first is null the second is not
      evaluated, and does not fail. */
  private boolean isTurned(Expression e) {
    if (!COMMUTATIVE.contains(e.getClass().getSimpleName())) return false;
    Expression left = e.children().apply(0);
    Expression right = e.children().apply(1);
    if (right instanceof Literal) return false;
    if (left instanceof Literal) return ((Literal) left).value() != null;
    Map first = described(left);
    Map second = described(right);
    return first != null && second != null && identity(first).compareTo(identity(second)) > 0;
  }

  private static Expression turned(Expression e) {
    List operands = ScalaInterop.list(e.children());
    Collections.reverse(operands);
    return e.withNewChildren(ScalaInterop.seq(operands));
  }

  private Map described(Expression e) {
    List path = Conditions.path(e);
    return path == null ? null : columns.describe(path, e.dataType());
  }

  private static String identity(Map column) {
    return (String) column.get(Protocol.IDENTITY);
  }

  private void function(Expression e, int depth) {
    out.append(e.getClass().getSimpleName());
    // Of letters beyond ASCII they ask the locale that Java has.
    String language = Locale.getDefault().getLanguage();
    boolean asks = e instanceof Lower || e instanceof Upper;
    if (asks && LANGUAGES.contains(language)) out.append(language);
    out.append('<').append(e.dataType().catalogString()).append(">(");
    boolean isTimeless = e instanceof Cast
        && !Cast$.MODULE$.needsTimeZone(((Cast) e).child().dataType(), e.dataType());
    scala.collection.Iterator parts = ((scala.Product) e).productIterator();
    while (parts.hasNext() && refusal == null) {
      Object part = parts.next();
      // A cast is given the session's zone whether it takes one or not.
      if (!(isTimeless && part instanceof scala.Option)) part(part, depth);
      out.append(',');
    }
    out.append(')');
  }

  private void part(Object part, int depth) {
    if (part instanceof Expression) {
      write((Expression) part, depth + 1);
    } else if (part instanceof DataType) {
      out.append(((DataType) part).catalogString());
    } else if (part instanceof Boolean || part instanceof Number
        || part instanceof scala.Enumeration.Value) {
      out.append(part);
    } else if (part instanceof String || part instanceof UTF8String) {
      quote(part.toString());
    } else if (part instanceof scala.Option || part instanceof scala.collection.Seq
        || part instanceof scala.Tuple2
        || part != null && part.getClass().getSimpleName().equals("NumericEvalContext")) {
      out.append('[');
      scala.collection.Iterator parts =
          part instanceof scala.collection.Seq
              ? ((scala.collection.Seq) part).iterator()
              : ((scala.Product) part).productIterator();
      while (parts.hasNext() && refusal == null) {
        part(parts.next(), depth + 1);
        out.append(',');
      }
      out.append(']');
    } else {
      refuse("it has a part that an index cannot hold");
    }
  }

  /** A text between quotes, which no text within can be taken for. */
  private void quote(String text) {
    if (text.length() > LONGEST) {
      refuse(TOO_LONG);
      return;
    }
    out.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c < ' ' || c > '~' || c == '"' || c == '\\') {
        out.append("\\u").append(Integer.toHexString(0x10000 | c).substring(1));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }

  private void literal(Object value, DataType type) {
    out.append("Literal<").append(type.catalogString()).append(">(");
    if (value == null || value instanceof Boolean || value instanceof Number
        || value instanceof org.apache.spark.sql.types.Decimal) {
      out.append(value);
    } else if (value instanceof UTF8String) {
      UTF8String text = (UTF8String) value;
      if (!Values.isUtf8(text)) refuse("a text in it is not UTF-8");
      quote(text.toString());
    } else {
      refuse("a literal in it has a type that an index cannot hold");
    }
    out.append(')');
  }

  private void column(Expression e) {
    Map column = described(e);
    if (column == null) {
      refuse("it reads a column that is not one of the table's");
      return;
    }
    read.add(column.get(Protocol.NAME));
    String type =
        VariantFields.isVariant(e.dataType()) ? "variant" : e.dataType().catalogString();
    out.append("Column<").append(type).append(">(");
    quote(identity(column));
    out.append(')');
  }
}
