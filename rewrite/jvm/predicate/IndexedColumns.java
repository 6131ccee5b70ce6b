package rewrite.jvm.predicate;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;

/** The columns of a table that an index may have, and the indexed expressions over them. */
public final class IndexedColumns {
  /** The limit of expressions that one request looks up; further ones are not indexed. */
  private static final int MAX_EXPRESSIONS = 1000;

  private final ColumnResolver columns;
  private final Set<String> expressions;
  private final Map<Expression, String> texts = new HashMap<>(); // thousands of operands share few
  private Boolean hasDefaultSettings; // null until an expression needs it

  /** `expressions` are the identities of the indexed ones (see ExpressionText). They are not used
      in a session whose settings change what they mean. */
  public IndexedColumns(ColumnResolver columns, Set<String> expressions) {
    this.columns = columns;
    this.expressions = expressions;
  }

  /** Return the identity of a column or an indexed expression; null if it is neither. */
  public String identity(Expression e) {
    Expression bare = Casts.bare(e);
    if (bare.dataType() instanceof ArrayType) return null;
    List<String> path = Conditions.path(bare);
    return path == null ? findExpression(bare) : columns.identity(path);
  }

  /** Return a column or an indexed expression; null if it is neither. */
  ColumnRef describe(Expression e) {
    Expression bare = Casts.bare(e);
    if (bare.dataType() instanceof ArrayType) return null; // see describeArray
    List<String> path = Conditions.path(bare);
    if (path != null) return columns.describe(path, bare.dataType());
    String identity = findExpression(bare);
    return identity == null
        ? null
        : new ColumnRef(identity, Conditions.shape(bare), bare.dataType().catalogString());
  }

  /** Return a column of arrays, whose elements an index has; null for any other expression. */
  ColumnRef describeArray(Expression e) {
    return e.dataType() instanceof ArrayType ? columns.describe(e) : null;
  }

  private String findExpression(Expression bare) {
    if (expressions.isEmpty() || bare instanceof Literal) return null;
    if (!texts.containsKey(bare)) {
      if (texts.size() == MAX_EXPRESSIONS) return null;
      texts.put(bare, ExpressionText.of(bare, columns).text());
    }
    String text = texts.get(bare);
    return text != null && expressions.contains(text) && hasDefaultSettings() ? text : null;
  }

  private boolean hasDefaultSettings() {
    if (hasDefaultSettings == null) {
      hasDefaultSettings = ExpressionText.findChangedSetting(SQLConf.get()) == null;
    }
    return hasDefaultSettings;
  }
}
