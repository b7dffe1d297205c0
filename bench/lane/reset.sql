
VACUUM lane_row;
UPDATE lane_total SET val = (SELECT sum(lane_row.val) FROM lane_row);
CHECKPOINT;
