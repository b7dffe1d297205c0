-- A reader of the hot row.
SELECT val FROM hot WHERE id = 1;
