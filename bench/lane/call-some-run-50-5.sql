\set share random(1, 100)
\if :share <= 50
CALL txn.run('CALL touch_plain($1, $2)', ARRAY['{' || :k1 || ',' || :k2 || ',' || :k3 || ',' || :k4 || ',' || :k5 || '}',
    '{' || :k6 || ',' || :k7 || ',' || :k8 || ',' || :k9 || ',' || :k10 || '}'], attempts => 1000);
\else
CALL touch_all(ARRAY[:k1, :k2, :k3, :k4, :k5]::bigint[], ARRAY[:k6, :k7, :k8, :k9, :k10]::bigint[]);
\endif
