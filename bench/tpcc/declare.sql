-- What the procedures write, as far as their arguments tell: the items of an order are drawn within, and 60 of 100
-- customers are found by their names. The warehouse is not declared: all payments update it first, and one that waits
-- for its turn there would keep the orders of its district waiting, too.
SELECT txn.declare_procedure('new_order(int, int, int, int, boolean, int, numeric)', ARRAY['district($1,$2)']);
SELECT txn.declare_procedure('payment(int, int, int, int, int, int, numeric)',
                             ARRAY['district($1,$2)', 'customer($3,$4,$5)']);
