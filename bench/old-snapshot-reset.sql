-- What an old snapshot has kept from being removed would be in the way of the next run.
VACUUM FULL hot;
VACUUM ANALYZE hot;
