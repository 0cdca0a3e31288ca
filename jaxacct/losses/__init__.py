"""What a privacy loss is and how losses combine."""
