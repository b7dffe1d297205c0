-- The last item is not in use: one of a hundred orders is taken back.
SELECT i_price FROM item WHERE i_id = 0;
ROLLBACK;
