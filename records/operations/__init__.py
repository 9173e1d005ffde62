"""What a service and its operators ask of a store besides records."""
