print('OK')
