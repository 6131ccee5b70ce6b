package rewrite.jvm.predicate;

import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.internal.config.ConfigEntry;
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
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Values;

/**
 * Writes an expression over columns of a table as a text: expressions with equal texts have equal
 * values on every row.
 *
 * <p>The text names each function by its class and all constructor arguments: time zone, ANSI mode,
 * types. It names columns by their identity. Only listed functions are supported: they depend on
 * their arguments, and on settings that must have their defaults.
 *
 * <p>Spark's canonical form is unsuitable, because it reorders chains of operands: (a + b) + c of
 * DOUBLE is not a + (b + c), and only one of them may overflow. Here a + b equals b + a, and the
 * order of the steps stays.
 */
public final class ExpressionText {
  private static final String PACKAGE = "org.apache.spark.sql.catalyst.expressions.";
  private static final int MAX_LENGTH = 4000;
  private static final int MAX_DEPTH = 60;
  static final String UNLISTED = " is not among the functions that an index can hold";
  private static final String TOO_LONG = "it is too long for an index";

  /** Languages with their own rules for upper and lower case. */
  private static final Set<String> LANGUAGES = Set.of("az", "el", "hy", "lt", "tr");

  private static final Set<String> FUNCTIONS = Set.of(
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
    "Unhex", "Upper", "VariantGet", "WeekDay", "WeekOfYear", "XxHash64", "Year", "YearOfWeek");

  private static final Set<String> COMMUTATIVE = Set.of(
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "EqualNullSafe", "EqualTo", "Multiply",
    "Or");

  /** Prefixes of the settings that these functions read when Spark evaluates them. */
  private static final List<String> SETTINGS = List.of(
    "spark.sql.legacy.", "spark.sql.icu.", "spark.sql.collation.",
    "spark.sql.decimalOperations.", "spark.sql.json.", "spark.sql.analyzer.canonicalization.");

  private final ColumnResolver columns;
  private final StringBuilder out = new StringBuilder(IndexClient.EXPRESSION);
  private final Set<String> read = new TreeSet<>();
  private String refusal;

  private ExpressionText(ColumnResolver columns) {
    this.columns = columns;
  }

  /** Write an optimized expression, in a session without a changed setting. */
  public static ExpressionText of(Expression e, ColumnResolver columns) {
    ExpressionText text = new ExpressionText(columns);
    text.write(e, 0);
    return text;
  }

  /** Whether a function or literal depends only on its arguments. */
  static boolean isListed(Expression e) {
    String name = e.getClass().getSimpleName();
    String path = e.getClass().getName();
    boolean isOfSpark = path.equals(PACKAGE + name) || path.equals(PACKAGE + "variant." + name);
    return isOfSpark && FUNCTIONS.contains(name);
  }

  static String unlistedReason(Expression e) {
    return e.prettyName() + UNLISTED;
  }

  public String text() {
    return refusal == null ? out.toString() : null;
  }

  public String refusal() {
    return refusal;
  }

  /** Return the names of the columns in it. */
  public Set<String> read() {
    return read;
  }

  /** Return a setting that changes what functions do, and does not have its default; or null. */
  static String findChangedSetting(SQLConf conf) {
    for (scala.Tuple2<String, String> setting :
        ScalaInterop.asJava(conf.getAllConfs())) {
      if (SETTINGS.stream().noneMatch(setting._1()::startsWith)) continue;
      ConfigEntry<?> entry = (ConfigEntry<?>) SQLConf$.MODULE$.getConfigEntry(setting._1());
      if (entry == null || !setting._2().equals(entry.defaultValueString())) return setting._1();
    }
    return null;
  }

  private void refuse(String why) {
    if (refusal == null) refusal = why;
  }

  private void write(Expression e, int depth) {
    if (refusal != null) return;
    e = VariantFields.restore(e);
    if (depth > MAX_DEPTH || out.length() > MAX_LENGTH) {
      refuse(TOO_LONG);
      return;
    }
    if (isCollated(e.dataType())) {
      refuse("a text in it has a collation");
    } else if (Conditions.path(e) != null) {
      column(e);
    } else if (e instanceof Literal literal) {
      literal(literal.value(), e.dataType());
    } else if (!isListed(e)) {
      refuse(unlistedReason(e));
    } else if (isOfItsDay(e)) {
      refuse("a text with a time alone is a timestamp of the day on which it is read");
    } else {
      function(isReversed(e) ? reverse(e) : e, depth);
    }
  }

  /** Whether texts, perhaps in a variant, become timestamps: `10:00` is a time of today. */
  private static boolean isOfItsDay(Expression e) {
    boolean isOfText = VariantFields.isGet(e)
        || e instanceof Cast cast && cast.child().dataType().existsRecursively(
            type -> type instanceof StringType || Values.isVariant(type));
    return isOfText && e.dataType().existsRecursively(type -> type instanceof TimestampType);
  }

  private static boolean isCollated(DataType type) {
    return type instanceof StringType && !type.catalogString().equals("string");
  }

  /** Whether to swap the operands of a commutative operator: a constant comes last, and columns are
      sorted by their identity. Other operands stay: if the first is null, Spark does not evaluate
      the second, which may fail. */
  private boolean isReversed(Expression e) {
    if (!COMMUTATIVE.contains(e.getClass().getSimpleName())) return false;
    Expression left = e.children().head();
    Expression right = e.children().last();
    if (right instanceof Literal) return false;
    if (left instanceof Literal literal) return literal.value() != null;
    ColumnRef first = columns.describe(left);
    ColumnRef second = columns.describe(right);
    return first != null && second != null && first.identity().compareTo(second.identity()) > 0;
  }

  private static Expression reverse(Expression e) {
    List<Expression> operands = ScalaInterop.asJava(e.children());
    Collections.reverse(operands);
    return e.withNewChildren(ScalaInterop.asScala(operands));
  }

  private void function(Expression e, int depth) {
    out.append(e.getClass().getSimpleName());
    // The case of letters beyond ASCII depends on Java's locale.
    String language = Locale.getDefault().getLanguage();
    boolean readsLocale = e instanceof Lower || e instanceof Upper;
    if (readsLocale && LANGUAGES.contains(language)) out.append(language);
    out.append('<').append(e.dataType().catalogString()).append(">(");
    boolean ignoresZone = e instanceof Cast cast
        && !Cast$.MODULE$.needsTimeZone(cast.child().dataType(), e.dataType());
    // Spark gives every cast the session's zone, even if it does not need one.
    parts(((scala.Product) e).productIterator(), depth, ignoresZone);
    out.append(')');
  }

  private void parts(scala.collection.Iterator<?> parts, int depth, boolean ignoresZone) {
    while (parts.hasNext() && refusal == null) {
      Object part = parts.next();
      if (!(ignoresZone && part instanceof scala.Option)) part(part, depth);
      out.append(',');
    }
  }

  private void part(Object part, int depth) {
    if (part instanceof Expression e) {
      write(e, depth + 1);
    } else if (part instanceof DataType type) {
      out.append(type.catalogString());
    } else if (part instanceof Boolean || part instanceof Number
        || part instanceof scala.Enumeration.Value) {
      out.append(part);
    } else if (part instanceof String || part instanceof UTF8String) {
      quote(part.toString());
    } else if (part instanceof scala.collection.Seq<?> items) {
      list(items.iterator(), depth);
    } else if (part instanceof scala.Option || part instanceof scala.Tuple2
        || part != null && part.getClass().getSimpleName().equals("NumericEvalContext")) {
      list(((scala.Product) part).productIterator(), depth);
    } else {
      refuse("it has a part that an index cannot hold");
    }
  }

  private void list(scala.collection.Iterator<?> parts, int depth) {
    out.append('[');
    parts(parts, depth + 1, false);
    out.append(']');
  }

  /** Quote a text so that nothing in it looks like a quote. */
  private void quote(String text) {
    if (text.length() > MAX_LENGTH) {
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
    } else if (value instanceof UTF8String text) {
      if (!Values.isUtf8(text)) refuse("a text in it is not UTF-8");
      quote(text.toString());
    } else {
      refuse("a literal in it has a type that an index cannot hold");
    }
    out.append(')');
  }

  private void column(Expression e) {
    ColumnRef column = columns.describe(e);
    if (column == null) {
      refuse("it reads a column that is not one of the table's");
      return;
    }
    read.add(column.name());
    String type = VariantFields.isVariant(e.dataType()) ? "variant" : e.dataType().catalogString();
    out.append("Column<").append(type).append(">(");
    quote(column.identity());
    out.append(')');
  }
}
