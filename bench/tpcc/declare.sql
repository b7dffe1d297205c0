-- What the procedures write, as far as their arguments tell: the items of an order are drawn within, and 60 of 100
-- customers are found by their names.
SELECT txn.declare_procedure('new_order', writes => ARRAY['district($1,$2)']);
SELECT txn.declare_procedure('payment', writes => ARRAY['warehouse($1)', 'district($1,$2)', 'customer($3,$4,$5)']);
