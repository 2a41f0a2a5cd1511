"""What people should know at once: told in the log, and to a webhook where the file names one."""
