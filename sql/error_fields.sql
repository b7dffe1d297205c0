-- What an error says beside its message (constraint, table, schema, column, type) is lost where an
-- error crosses a Rust frame. With the extension in the way it has to be all there, as in stock.
SET txn.group_lock = on;
SET txn.hot_threshold = 0;

CREATE SCHEMA shop;
CREATE DOMAIN shop.price AS int CONSTRAINT not_free CHECK (VALUE > 0);
CREATE TABLE shop.item (id int PRIMARY KEY, code text CONSTRAINT item_code UNIQUE,
                        stock int CONSTRAINT in_stock CHECK (stock >= 0), name text NOT NULL,
                        price shop.price);
CREATE TABLE shop.sale (id int PRIMARY KEY, item int CONSTRAINT sold REFERENCES shop.item,
                        at int4range, CONSTRAINT once EXCLUDE USING gist (at WITH &&));
INSERT INTO shop.item VALUES (1, 'a', 1, 'pen', 1), (2, 'b', 1, 'ink', 1);
INSERT INTO shop.sale VALUES (1, 1, '[1,2)'), (2, 1, '[2,3)');

\a
CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    code text; said text; detail text; hint text; s text; t text; c text; col text; typ text; ctx text;
BEGIN
    EXECUTE sql;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, said = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT, s = SCHEMA_NAME, t = TABLE_NAME, c = CONSTRAINT_NAME, col = COLUMN_NAME,
        typ = PG_DATATYPE_NAME, ctx = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws(' | ', code, said, detail, nullif(hint, ''), 'schema=' || s, 'table=' || t,
        'constraint=' || c, 'column=' || col, 'type=' || typ, split_part(ctx, E'\n', 1));
END $$;
SELECT pg_temp.told($$ UPDATE shop.item SET id = 2 WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.item SET code = 'b' WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.item SET stock = stock - 2 WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.item SET name = NULL WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.item SET price = 0 WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.item SET id = 3 WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.sale SET item = 9 WHERE id = 1 $$);
SELECT pg_temp.told($$ UPDATE shop.sale SET at = '[2,4)' WHERE id = 1 $$);
SELECT pg_temp.told($$ DELETE FROM shop.item WHERE id = 1 $$);
SELECT pg_temp.told($$ INSERT INTO shop.item VALUES (1, 'c', 1, 'cap', 1) $$);
SELECT pg_temp.told($$ INSERT INTO shop.sale VALUES (3, 9) $$);
SELECT pg_temp.told($$ INSERT INTO shop.item VALUES (3, 'b', 1, 'cap', 1) ON CONFLICT (id) DO NOTHING $$);
SELECT pg_temp.told($$ SELECT * FROM shop.item WHERE id = 1 / 0 FOR UPDATE $$);

SELECT id, stock FROM shop.item ORDER BY id;
DROP TABLE shop.sale, shop.item;
DROP DOMAIN shop.price;
DROP SCHEMA shop;
