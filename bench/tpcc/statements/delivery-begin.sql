\set d 0
BEGIN;
