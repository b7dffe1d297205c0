-- One of 10,000 rows by Zipf's law: rank i with a probability proportional to i^-0.99 (pgbench's own random_zipfian wants more
-- than 1.001). The first eight ranks have their exact share, from the running sum; the others take the inverse of the integral
-- of x^-0.99 from 8.5 to 10000.5, rounded (as int does), whose share of each rank is right to a thousandth. Ranks are
-- scattered over the rows.
\set u random(0, 999999999) / 1000000000.0
\set v (:u - 0.268007) / (1 - 0.268007)
\set rank CASE \
    WHEN :u < 0.097806 THEN 1 WHEN :u < 0.147049 THEN 2 WHEN :u < 0.180011 THEN 3 WHEN :u < 0.204803 THEN 4 \
    WHEN :u < 0.224682 THEN 5 WHEN :u < 0.241277 THEN 6 WHEN :u < 0.255524 THEN 7 WHEN :u < 0.268007 THEN 8 \
    ELSE int(pow(pow(8.5, 0.01) + :v * (pow(10000.5, 0.01) - pow(8.5, 0.01)), 100)) END
\set row 1 + CASE WHEN :spread = 1 THEN 100 * :client_id ELSE permute(:rank - 1, 10000, 1) END
UPDATE hot SET val = val + 1 WHERE id = :row;
