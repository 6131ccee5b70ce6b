package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;

/**
 * The WHEN NOT MATCHED BY SOURCE clauses of a MERGE.
 *
 * @param target the columns of the table, as far as they tell its scans
 * @param conditions those of the clauses, in terms of these columns
 */
public record UnmatchedClauses(List<Attribute> target, List<Expression> conditions) {
  public boolean has(ExprId column) {
    return target.stream().anyMatch(each -> each.exprId().equals(column));
  }

  /** Whether a clause may change each row of the table. */
  public boolean changeAll() {
    return conditions.stream()
        .anyMatch(
            each ->
                each.equals(Literal$.MODULE$.TrueLiteral()) || !each.deterministic()
                    || SubqueryExpression.hasSubquery(each));
  }
}
