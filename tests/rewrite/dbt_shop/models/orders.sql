{% if is_incremental() %}
SELECT id, 'changed' AS state FROM range(3, 5)
{% else %}
SELECT /*+ REPARTITION_BY_RANGE(8, id) */ id, 'new' AS state FROM range(800)
{% endif %}
