CALL touch_all(ARRAY[:k1, :k2]::bigint[], ARRAY[:k3, :k4, :k5, :k6, :k7, :k8, :k9, :k10]::bigint[]);
