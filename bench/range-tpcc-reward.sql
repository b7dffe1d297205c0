-- A bulk transaction: of :scan customers of a district the one who has paid the most is rewarded.
\set w 1 + :client_id % :warehouses
\set d random(1, 10)
\set low random(1, 3000 - :scan + 1)
\set high :low + :scan - 1
BEGIN;
SELECT c_id AS best FROM customer
WHERE c_w_id = :w AND c_d_id = :d AND c_id BETWEEN :low AND :high
ORDER BY c_ytd_payment DESC, c_id LIMIT 1 \gset
UPDATE customer SET c_balance = c_balance - 1000, c_rewards = c_rewards + 1
WHERE c_w_id = :w AND c_d_id = :d AND c_id = :best;
COMMIT;
