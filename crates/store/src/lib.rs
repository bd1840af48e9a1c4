//! Flow records kept: a dataset of Parquet files, partitioned by time, and answers from it.
