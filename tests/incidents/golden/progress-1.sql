-- A progress store of version 1 with two changefeeds of the database in events-1.jsonl: one in the middle of its
-- initial scan, one in the middle of the log. Written by the code of that time; later code must go on from it.
CREATE TABLE cdc_store (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
CREATE TABLE cdc_changefeeds (
	name VARCHAR(40) NOT NULL, 
	feed_id VARCHAR(12) NOT NULL, 
	epoch BIGINT NOT NULL, 
	definition TEXT NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	token TEXT, 
	frontier TEXT, 
	latest VARCHAR(40), 
	counters TEXT, 
	saved_at VARCHAR(32), 
	PRIMARY KEY (name), 
	UNIQUE (feed_id)
);
INSERT INTO cdc_store (version) VALUES (1);
INSERT INTO cdc_changefeeds (name, feed_id, epoch, definition, created_at, token, frontier, latest, counters, saved_at)
VALUES (
    'scan',
    '0123456789ab',
    1,
    '{"format":"json","sink":"file://@DIRECTORY@/out","source":"simulated://@DIRECTORY@/db","tables":["t"]}',
    '2026-11-21T11:35:15.831+00:00',
    '{"events":11,"frontier":[["sim.public.t","",null,"1600000000251359177.0000000002"]],"scan":{"at":"1600000000251359177.0000000002","done":3,"left":[["sim.public.t","8000000000000003",null]],"total":6},"tables":{"sim.public.t":"1600000000251359177.0000000000"}}',
    '[["sim.public.t","","8000000000000003","1600000000251359177.0000000002"],["sim.public.t","8000000000000003",null,"0.0000000000"]]',
    '1600000000251359177.0000000002',
    '{"bytes":300,"files":2,"messages":3,"rows":3,"steps":1}',
    '2026-11-21T11:35:15.915+00:00'
);
INSERT INTO cdc_changefeeds (name, feed_id, epoch, definition, created_at, token, frontier, latest, counters, saved_at)
VALUES (
    'log',
    'ba9876543210',
    1,
    '{"format":"json","sink":"file://@DIRECTORY@/out","source":"simulated://@DIRECTORY@/db","tables":["t"]}',
    '2026-11-21T11:35:15.831+00:00',
    '{"events":21,"frontier":[["sim.public.t","","8000000000000003","1600000000545940723.0000000000"],["sim.public.t","8000000000000003",null,"1600000000251359177.0000000002"]],"scan":null,"tables":{"sim.public.t":"1600000000251359177.0000000000"}}',
    '[["sim.public.t","","8000000000000003","1600000000545940723.0000000000"],["sim.public.t","8000000000000003",null,"1600000000251359177.0000000002"]]',
    '1600000000545940723.0000000000',
    '{"bytes":900,"files":5,"messages":9,"rows":9,"source.retained_s":0.0,"steps":3}',
    '2026-11-21T11:35:15.938+00:00'
);
