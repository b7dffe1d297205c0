BEGIN;
CALL touch_writes(ARRAY[:k1, :k2, :k3, :k4, :k5]::bigint[], ARRAY[:k6, :k7, :k8, :k9, :k10]::bigint[]);
ROLLBACK;
