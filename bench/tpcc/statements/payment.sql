BEGIN;
UPDATE warehouse SET w_ytd = w_ytd + :cents / 100.0 WHERE w_id = :w
RETURNING w_name \gset
UPDATE district SET d_ytd = d_ytd + :cents / 100.0 WHERE d_w_id = :w AND d_id = :d
RETURNING d_name \gset
\if :name >= 0
SELECT (array_agg(c_id ORDER BY c_first))[((count(*) + 1) / 2)::int] AS c
FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[]) AS p (part), customer
WHERE c_w_id = :c_w AND c_d_id = :c_d
  AND c_last = part[:name / 100 + 1] || part[:name / 10 % 10 + 1] || part[:name % 10 + 1] \gset
\endif
UPDATE customer
SET c_balance = c_balance - :cents / 100.0, c_ytd_payment = c_ytd_payment + :cents / 100.0,
    c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE c_credit
             WHEN 'BC' THEN substr(concat_ws(' ', c_id, c_d_id, c_w_id, :d::int, :w::int,
                                             :cents / 100.0, c_data), 1, 500)
             ELSE c_data END
WHERE c_w_id = :c_w AND c_d_id = :c_d AND c_id = :c;
INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
VALUES (:c, :c_d, :c_w, :d, :w, now(), :cents / 100.0, :w_name || '    ' || :d_name);
COMMIT;
