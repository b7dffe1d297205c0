-- Triggers of the coordinator on what lies at the nodes.
CREATE TABLE log (number int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO log (line) VALUES (concat_ws(' ', TG_NAME, TG_TABLE_NAME, TG_WHEN, TG_OP, TG_LEVEL,
        CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN OLD.id || ':' || OLD.balance END,
        CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN NEW.id || ':' || NEW.balance END));
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.balance > 10000 THEN
        RETURN NULL;
    END IF;
    NEW.owner = coalesce(NEW.owner, '') || '!';
    RETURN NEW;
END $$;
CREATE TRIGGER after_row AFTER INSERT OR UPDATE OR DELETE ON account_0 FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER statement AFTER INSERT OR UPDATE OR DELETE ON account_0 FOR EACH STATEMENT EXECUTE FUNCTION note();
INSERT INTO account VALUES (50, 1, 'a'), (1050, 2, 'a');
UPDATE account SET balance = balance + 1 WHERE id IN (50, 1050);
UPDATE account_0 SET balance = balance + 1 WHERE id IN (50, 51) RETURNING id, balance;
DELETE FROM account WHERE id = 50;
SELECT line FROM log ORDER BY number;
CREATE TRIGGER before_row BEFORE INSERT OR UPDATE ON account_0 FOR EACH ROW EXECUTE FUNCTION change();
CREATE TRIGGER before_row BEFORE INSERT OR UPDATE ON account_1 FOR EACH ROW EXECUTE FUNCTION change();
INSERT INTO account VALUES (60, 1, 'b'), (1060, 2, NULL) RETURNING id, owner;
INSERT INTO account VALUES (61, 20000, 'not inserted'), (62, 2, 'inserted') RETURNING id;
UPDATE account SET balance = balance + 10 WHERE id IN (60, 1060, 62) RETURNING id, balance, owner;
UPDATE account SET balance = 20000 WHERE id IN (60, 1060);
UPDATE account SET balance = account.balance * 2 FROM home h WHERE h.id = account.id RETURNING account.id, account.balance, owner;
DELETE FROM account WHERE id IN (60, 1060) RETURNING *;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not %', OLD.id USING ERRCODE = 'P0009';
END $$;
CREATE TRIGGER refusal BEFORE DELETE ON account_1 FOR EACH ROW WHEN (OLD.balance > 3) EXECUTE FUNCTION refuse();
DELETE FROM account WHERE id IN (1, 1001);
SELECT line FROM log ORDER BY number;
SELECT * FROM account ORDER BY id;
