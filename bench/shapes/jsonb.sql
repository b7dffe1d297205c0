\set row 1 + :spread * 100 * :client_id
UPDATE kinds SET val = val + 1, data = jsonb_set(data, '{n}', to_jsonb((data ->> 'n')::bigint + 1)) WHERE id = :row;
