BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0010');
CREATE TABLE clients (
	name TEXT NOT NULL, 
	served_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "clients" VALUES('bob','2026-11-22 09:00:01.000');
CREATE TABLE deliveries (
	id INTEGER NOT NULL, 
	webhook_id VARCHAR(12) NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	state TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	not_before DATETIME NOT NULL, 
	error TEXT, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(webhook_id) REFERENCES webhooks (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE device_limits (
	device TEXT NOT NULL, 
	flops DOUBLE NOT NULL, 
	bytes_per_second DOUBLE NOT NULL, 
	cache_bytes BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (device)
);
CREATE TABLE drained_workers (
	name TEXT NOT NULL, 
	client TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	kind TEXT NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "events" VALUES(1,'22222222222222222222222222222222','round','{"n":0}','2026-11-21 17:11:10.173');
CREATE TABLE job_tasks (
	job_id VARCHAR(64) NOT NULL, 
	kernel INTEGER NOT NULL, 
	title TEXT NOT NULL, 
	weight DOUBLE NOT NULL, 
	estimate DOUBLE NOT NULL, 
	PRIMARY KEY (job_id, kernel), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "job_tasks" VALUES('33333333333333333333333333333333',0,'conv2d',3.0,0.006);
INSERT INTO "job_tasks" VALUES('33333333333333333333333333333333',1,'dense',1.0,0.0005);
CREATE TABLE jobs (
	id VARCHAR(64) NOT NULL, 
	workload_key TEXT NOT NULL, 
	target TEXT NOT NULL, 
	device TEXT, 
	seed BIGINT, 
	options JSON NOT NULL, 
	state TEXT NOT NULL, 
	trials_requested INTEGER NOT NULL, 
	trials_done INTEGER NOT NULL, 
	error TEXT, 
	origin TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, priority INTEGER DEFAULT '0' NOT NULL, lease_owner TEXT, lease_epoch INTEGER DEFAULT '0' NOT NULL, lease_until DATETIME, best_seconds DOUBLE, claimed_at DATETIME, client TEXT DEFAULT '' NOT NULL, name TEXT, tags TEXT DEFAULT '' NOT NULL, phase TEXT, notice TEXT, best_record_id BIGINT, baseline_seconds DOUBLE, run_seconds DOUBLE DEFAULT '0' NOT NULL, not_before DATETIME, ended_at DATETIME, token_id VARCHAR(12), batch_id VARCHAR(32), device_part DOUBLE DEFAULT '1' NOT NULL, pool TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(workload_key) REFERENCES workloads ("key")
);
INSERT INTO "jobs" VALUES('11111111111111111111111111111111','w0','llvm -mcpu=znver5','zen5-2c',0,'{}','succeeded',64,4,NULL,'local','2026-11-21 14:09:51.554','2026-11-21 14:09:51.615',0,NULL,0,NULL,0.0025,NULL,'',NULL,'',NULL,NULL,1,0.003,0.0,NULL,'2026-11-21 14:09:51.615',NULL,NULL,1.0,NULL);
INSERT INTO "jobs" VALUES('22222222222222222222222222222222','w1','llvm -mcpu=znver5',NULL,3,'{}','failed',8,0,'it broke','local','2026-11-21 17:11:10.153','2026-11-21 17:11:10.176',1,NULL,1,NULL,NULL,NULL,'ann',NULL,'',NULL,NULL,NULL,NULL,0.0,NULL,'2026-11-21 17:11:10.176',NULL,NULL,1.0,NULL);
INSERT INTO "jobs" VALUES('33333333333333333333333333333333','w1','llvm -mcpu=znver5','zen5-2c',5,'{}','succeeded',8,8,NULL,'local','2026-11-22 09:00:00.000','2026-11-22 09:05:00.000',0,NULL,1,NULL,0.004,'2026-11-22 09:00:01.000','bob','net','',NULL,NULL,NULL,0.005,299.0,NULL,'2026-11-22 09:05:00.000','0123456789ab','44444444444444444444444444444444',1.0,NULL);
CREATE TABLE measurements (
	id INTEGER NOT NULL, 
	record_id INTEGER NOT NULL, 
	seconds DOUBLE NOT NULL, 
	spread DOUBLE, 
	noise DOUBLE, 
	runs INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(record_id) REFERENCES records (id)
);
INSERT INTO "measurements" VALUES(1,1,0.0025,1.0e-05,0.01,7,'local','2026-11-01 00:00:00.000000');
CREATE TABLE records (
	id INTEGER NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	kind TEXT NOT NULL, 
	round INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	workload_key TEXT NOT NULL, 
	target TEXT NOT NULL, 
	device TEXT NOT NULL, 
	toolchain TEXT NOT NULL, 
	trace_id INTEGER NOT NULL, 
	decisions JSON NOT NULL, 
	program_hash TEXT NOT NULL, 
	status TEXT NOT NULL, 
	error TEXT, 
	seconds DOUBLE, 
	spread DOUBLE, 
	noise DOUBLE, 
	runs INTEGER NOT NULL, 
	build_seconds DOUBLE, 
	origin TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	remeasured_seconds DOUBLE, 
	standing SMALLINT, 
	ranked_seconds DOUBLE, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_records_job_round_slot UNIQUE (job_id, round, slot), 
	FOREIGN KEY(job_id) REFERENCES jobs (id), 
	FOREIGN KEY(workload_key) REFERENCES workloads ("key"), 
	FOREIGN KEY(trace_id) REFERENCES traces (id)
);
INSERT INTO "records" VALUES(1,'11111111111111111111111111111111','trial',0,0,'w0','llvm -mcpu=znver5','zen5-2c','llvmlite 0.45',1,'{"t0":4}','p0','ok',NULL,0.002,1.0e-06,0.01,10,0.02,'local','2026-11-21 14:09:51.569684',0.0025,0,0.0025);
INSERT INTO "records" VALUES(2,'11111111111111111111111111111111','trial',0,1,'w0','llvm -mcpu=znver5','zen5-2c','llvmlite 0.45',1,'{"t0":4}','p1','ok',NULL,0.001,1.0e-06,0.01,10,0.02,'local','2026-11-21 14:09:51.569712',NULL,2,0.001);
INSERT INTO "records" VALUES(3,'11111111111111111111111111111111','trial',0,2,'w0','llvm -mcpu=znver5','zen5-2c','llvmlite 0.45',1,'{"t0":4}','p2','build_error','it broke',NULL,1.0e-06,0.01,10,0.02,'local','2026-11-21 14:09:51.569726',NULL,NULL,NULL);
INSERT INTO "records" VALUES(4,'11111111111111111111111111111111','baseline',-1,0,'w0','llvm -mcpu=znver5','zen5-2c','llvmlite 0.45',1,'{"t0":4}','base0','ok',NULL,0.003,1.0e-06,0.01,10,0.02,'local','2026-11-21 14:09:51.569746',NULL,1,0.003);
INSERT INTO "records" VALUES(5,'11111111111111111111111111111111','trial',0,3,'w0','llvm -mcpu=znver5','cpu2','llvmlite 0.45',1,'{"t0":4}','p3','ok',NULL,0.004,1.0e-06,0.01,10,0.02,'local','2026-11-21 14:09:51.569756',NULL,2,0.004);
CREATE TABLE submissions (
	client TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (client, "key"), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE tokens (
	id VARCHAR(12) NOT NULL, 
	name TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, max_jobs BIGINT, max_trials BIGINT, max_device_seconds DOUBLE, previous_hash TEXT, previous_until DATETIME, spent_trials BIGINT DEFAULT '0' NOT NULL, spent_seconds DOUBLE DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "tokens" VALUES('0123456789ab','ann','submit','x','2026-11-21 17:11:10.173',NULL,NULL,NULL,NULL,NULL,NULL,NULL,16,2.5);
CREATE TABLE traces (
	id INTEGER NOT NULL, 
	hash TEXT NOT NULL, 
	dialect INTEGER NOT NULL, 
	data JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (hash)
);
INSERT INTO "traces" VALUES(1,'e51501e670d29f961457bac97be36fe43e4527f4c56288090752713f16fa185d',1,'[["get_block",["C"],["b0"]],["split",["l0","?t0"],["l1","l2"]]]');
CREATE TABLE traffic (
	workload_key TEXT NOT NULL, 
	bytes BIGINT NOT NULL, 
	dtype TEXT, 
	PRIMARY KEY (workload_key), 
	FOREIGN KEY(workload_key) REFERENCES workloads ("key")
);
CREATE TABLE webhooks (
	id VARCHAR(12) NOT NULL, 
	client TEXT NOT NULL, 
	url TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE worker_minutes (
	name TEXT NOT NULL, 
	minute BIGINT NOT NULL, 
	trials INTEGER NOT NULL, 
	busy_seconds DOUBLE NOT NULL, 
	faults INTEGER NOT NULL, 
	PRIMARY KEY (name, minute)
);
CREATE TABLE workloads (
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	args JSON, 
	script TEXT NOT NULL, 
	flop DOUBLE NOT NULL, 
	created_at DATETIME NOT NULL, text TEXT, 
	PRIMARY KEY ("key")
);
INSERT INTO "workloads" VALUES('w0','matmul','[8,8,8]','def main(): ...',1024.0,'2026-11-21 14:09:51.524',NULL);
INSERT INTO "workloads" VALUES('w1','main',NULL,'def main(x): ...',0.0,'2026-11-21 14:09:51.565',NULL);
CREATE INDEX ix_jobs_resume ON jobs (workload_key, target, seed, created_at);
CREATE INDEX ix_records_workload ON records (workload_key, id);
CREATE INDEX ix_records_best ON records (workload_key, target, device, standing, ranked_seconds, id, status);
CREATE INDEX ix_measurements_record_id ON measurements (record_id);
CREATE INDEX ix_events_job ON events (job_id, id);
CREATE INDEX ix_records_job ON records (job_id, id, kind, status, seconds);
CREATE INDEX ix_jobs_state ON jobs (state, created_at, id);
CREATE INDEX ix_jobs_created ON jobs (created_at, id);
CREATE INDEX ix_jobs_client ON jobs (client, claimed_at);
CREATE INDEX ix_submissions_created_at ON submissions (created_at);
CREATE INDEX ix_jobs_token ON jobs (token_id, state);
CREATE INDEX ix_jobs_batch ON jobs (batch_id);
CREATE INDEX ix_jobs_ended ON jobs (ended_at);
CREATE INDEX ix_worker_minutes_minute ON worker_minutes (minute);
CREATE INDEX ix_webhooks_client ON webhooks (client);
CREATE INDEX ix_deliveries_state ON deliveries (state, not_before);
CREATE INDEX ix_deliveries_webhook ON deliveries (webhook_id, id);
CREATE INDEX ix_deliveries_job_id ON deliveries (job_id);
COMMIT;
