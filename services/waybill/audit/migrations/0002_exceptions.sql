SELECT {schema}.watch('exceptions.exception', 'opened_by', 'moved_by');
