-- With the warehouse: where transactions are validated, two payments that meet there undeclared are a conflict.
SELECT txn.declare_procedure('new_order(int, int, int, int, boolean, int, numeric)', ARRAY['district($1,$2)']);
SELECT txn.declare_procedure('payment(int, int, int, int, int, int, numeric)',
                             ARRAY['warehouse($1)', 'district($1,$2)', 'customer($3,$4,$5)']);
