-- Every way to say UPDATE does what it does without the extension: these outputs are stock's.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE TABLE acc (id int PRIMARY KEY, val int NOT NULL, note text);
INSERT INTO acc SELECT id, 0, 'n' || id FROM generate_series(1, 5) id;

-- constants, casts, both sides, more quals
UPDATE acc SET val = val + 1 WHERE id = 1;
UPDATE acc SET val = val + 1 WHERE 1 = id RETURNING id, val;
UPDATE acc SET val = val + 1 WHERE id = '1'::int RETURNING *;
UPDATE acc SET val = val + 1 WHERE id = 1::bigint RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1::smallint RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 0 + 1 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 AND val > 0 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 AND val > 100 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 AND note LIKE 'n%' RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 99 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = NULL RETURNING val;
UPDATE acc SET val = val + 1 WHERE id IS NULL RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = 1 AND id = 2 RETURNING val;
UPDATE acc SET val = val + 1 WHERE false;

-- more than one row
UPDATE acc SET val = val + 1 WHERE id IN (1, 2, 99) RETURNING id, val;
UPDATE acc SET val = val + 1 WHERE id = ANY ('{3,1}') RETURNING id, val;
UPDATE acc SET val = val + 1 WHERE id = 1 OR id = 4 RETURNING id, val;
UPDATE acc SET val = val + 1 WHERE id BETWEEN 2 AND 3 RETURNING id, val;
UPDATE acc SET val = val + 1 RETURNING id, val;

-- joins, subqueries, CTEs, aliases
UPDATE acc a SET val = a.val + b.val FROM acc b WHERE a.id = 1 AND b.id = 2 RETURNING a.id, a.val;
UPDATE acc SET val = (SELECT max(val) FROM acc) WHERE id = 3 RETURNING val;
UPDATE acc SET val = val + 1 WHERE id = (SELECT min(id) FROM acc) RETURNING id, val;
WITH u AS (UPDATE acc SET val = val + 1 WHERE id = 5 RETURNING val)
    SELECT u.val AS new, acc.val AS old FROM u, acc WHERE id = 5;
WITH u AS (UPDATE acc SET val = val + 1 WHERE id = 1 RETURNING id), v AS (UPDATE acc SET val = val + 1 WHERE id = 2 RETURNING id)
    SELECT * FROM u UNION ALL SELECT * FROM v ORDER BY 1;
UPDATE acc SET (val, note) = (SELECT 42, 'both') WHERE id = 4 RETURNING *;
UPDATE acc SET val = DEFAULT WHERE id = 4;
UPDATE acc SET note = DEFAULT WHERE id = 4 RETURNING note;
UPDATE ONLY acc SET val = 7 WHERE id = 4 RETURNING acc.*;

-- what RETURNING can say
UPDATE acc SET val = 0 WHERE id = 1 RETURNING id, val, val * 2 AS double, tableoid::regclass;

-- the key itself, deletes
UPDATE acc SET id = 10 WHERE id = 1 RETURNING id, val;
UPDATE acc SET id = 2 WHERE id = 10;
UPDATE acc SET id = id WHERE id = 2 RETURNING id;
DELETE FROM acc WHERE id = 10 RETURNING id, val;
DELETE FROM acc WHERE id = 10 RETURNING id, val;
UPDATE acc SET val = val + 1 WHERE id = 10;
INSERT INTO acc VALUES (10, 1, 'again');
UPDATE acc SET val = val + 1 WHERE id = 10 RETURNING val;

-- prepared: custom plans, then a generic one
PREPARE bump (int) AS UPDATE acc SET val = val + 1 WHERE id = $1 RETURNING id, val;
EXECUTE bump (2);
EXECUTE bump (2);
EXECUTE bump (2);
EXECUTE bump (2);
EXECUTE bump (2);
EXECUTE bump (2);
EXECUTE bump (3);
EXECUTE bump (NULL);
EXECUTE bump (99);
SET plan_cache_mode = force_generic_plan;
EXECUTE bump (2);
EXECUTE bump (3);
RESET plan_cache_mode;
DEALLOCATE bump;

SELECT * FROM acc ORDER BY id;
DROP TABLE acc;
