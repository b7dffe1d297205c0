-- TPC-C's Payment: of each hundred customers 15 are those of another warehouse.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set other 1 + (:w + random(0, :warehouses - 2)) % :warehouses
\set c_w CASE WHEN random(1, 100) <= 15 THEN :other ELSE :w END
\set c_d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 259) % 3000
\set amount random(100, 500000)
BEGIN;
UPDATE warehouse SET w_ytd = w_ytd + :amount WHERE w_id = :w;
UPDATE district SET d_ytd = d_ytd + :amount WHERE d_w_id = :w AND d_id = :d;
UPDATE customer SET c_balance = c_balance - :amount, c_ytd_payment = c_ytd_payment + :amount, c_payment_cnt = c_payment_cnt + 1
WHERE c_w_id = :c_w AND c_d_id = :c_d AND c_id = :c;
INSERT INTO history (h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount) VALUES (:w, :d, :c_w, :c_d, :c, :amount);
COMMIT;
